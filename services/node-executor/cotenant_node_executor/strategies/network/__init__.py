"""Bandwidth by QoS class: HTB classes of this node, or the files of terway-qos."""
