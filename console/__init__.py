"""Processes and people: command line, configuration, web page, local stack. The only place with a main."""
