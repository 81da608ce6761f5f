"""From a burst to a picture: windows, memory, whole jobs, folders of bursts."""
