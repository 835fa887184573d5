"""What the plugin costs a Pulsar broker: `cost` pairs a broker as it is with one that has it. Needs
`make broker-classes plugin-jar`.
"""
