"""Faults on the real stack: clients, watches and pods through two gateways on three servers, and a history that is checked."""
