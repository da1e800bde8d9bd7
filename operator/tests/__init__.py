"""A package, so that pytest calls these modules tests.…: by their path they would be operator.tests.…, and hide Python's operator."""
