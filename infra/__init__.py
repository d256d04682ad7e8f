"""What surrounds the deployed code: the template of the cloud's resources, and the cloud of a development machine."""
