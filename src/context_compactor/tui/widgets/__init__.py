"""What the screens are made of: a list that makes its rows as they are seen, a gauge, and a prompt."""
