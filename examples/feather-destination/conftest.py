"""The Spark session that the contract asks for."""

pytest_plugins = ["destination_contract.plugin"]
