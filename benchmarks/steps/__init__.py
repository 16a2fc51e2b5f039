"""What a step costs: beside a C loop, as the data grow, on two devices, and of a network."""
