"""What penstock costs and how fast it is, measured against the limits of the machine in the same run."""
