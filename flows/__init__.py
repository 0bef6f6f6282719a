"""What a person or a schedule starts: the command line, a flow in each module here, and the rooms that they use."""
