"""The logical replication stream as values: the reference path, one pure function a layer."""
