"""What the local stack takes from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.local_stack.environment import StackKind, cache_dir, ivy_settings, stack_kind
from console.local_stack.errors import LocalStackError


def test_the_cache_lies_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")

    assert cache_dir() == Path("/somewhere/cache/penstock")


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_the_cache_lies_at_home_where_xdg_says_nothing_valid(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/home/ada")

    assert cache_dir() == Path("/home/ada/.cache/penstock")


def test_the_stack_kind_is_auto_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_STACK", raising=False)

    assert stack_kind() is StackKind.AUTO


def test_an_unknown_stack_kind_is_refused_and_the_known_ones_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STACK", "podman")

    with pytest.raises(LocalStackError, match="'podman', which is none of: auto, docker, native"):
        stack_kind()


def test_ivy_settings_are_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_IVY_SETTINGS", "/etc/mirror.xml")

    assert ivy_settings() == Path("/etc/mirror.xml")
