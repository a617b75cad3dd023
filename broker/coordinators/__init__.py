"""What the machines of coordinators share: the effects that they want done, and how records of internal topics are encoded."""
