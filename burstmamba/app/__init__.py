"""The web page: drop a burst, look at its frames, run, compare, download. Needs the extra `app` (Gradio)."""
