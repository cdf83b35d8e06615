"""The Reservation plugin: rules by which pods are matched with reservations and given their room."""
