"""`kvlab bench gpu`: is the GPU path right, and how near is it to what the hardware can do?"""
