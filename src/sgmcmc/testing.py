"""The battery that every sampler goes through, for samplers of your own."""
