"""The lab in a browser's tab: the engine in Pyodide, the model and its memory in JavaScript."""
