"""The controller: it elects leaders and follows brokers and topics. Most rules are pure functions; one task owns the state."""
