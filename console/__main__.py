"""`python -m console` is `penstock`."""

from console.cli import main

main()
