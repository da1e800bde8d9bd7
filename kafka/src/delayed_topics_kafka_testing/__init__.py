"""What tests of several members do to a broker."""
