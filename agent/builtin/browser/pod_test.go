package browser_test

func bePod(string) {}
