"""What a report is asked for, and what is done with figures once they are read: pure."""
