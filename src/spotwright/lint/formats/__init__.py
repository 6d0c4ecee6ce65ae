"""What lint prints: lines for people, JSON, and SARIF for services that show findings beside the code."""
