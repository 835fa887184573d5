"""The command line `cursorkeeper`. `main` names the commands; each is loaded only when it is
called.
"""
