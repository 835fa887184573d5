from cursorkeeper.compiled import prefer

prefer(__name__, __path__)
