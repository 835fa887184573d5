"""What earlier releases wrote (`testdata/releases/`) is read for ever."""
