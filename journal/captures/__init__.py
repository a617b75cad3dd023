"""Captures of packets (pcap, pcapng) become journals, and frames of journals become captures. Needs dpkt."""
