package main

import (
	"maps"
	"runtime"
	"slices"
	"testing"
)

// TestLicences: everything in the program, in its pages and in its tests has a licence that is accepted.
func TestLicences(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	all, err := programModules()
	if err != nil {
		t.Fatal(err)
	}
	tested, err := modules(runtime.GOOS+"/"+runtime.GOARCH, "-test", root+"/...")
	if err != nil {
		t.Fatal(err)
	}
	all = unique(append(all, tested...))
	if len(all) < 30 {
		t.Errorf("only %d modules", len(all))
	}
	for _, c := range all {
		if ids, err := c.licences(); err != nil {
			t.Error(err)
		} else {
			t.Log(c.name, c.version, ids)
		}
	}
	packages, err := pagePackages(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 10 {
		t.Errorf("only %d packages of npm", len(packages))
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if p := packages[dir]; !allowed(p.License) {
			t.Errorf("%s %s: the licence %q is not one that is accepted", dir, p.Version, p.License)
		}
	}
}

func TestLicenceOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"MIT License\n\nPermission is hereby granted, free of\ncharge, to any person obtaining a copy of it": "MIT",
		"GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007":                                                 "",
		"All rights reserved.": "",
	} {
		if got := licenceOf([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	for id, want := range map[string]bool{
		"MIT": true, "(MPL-2.0 OR Apache-2.0)": true, "GPL-3.0": false, "": false, "(GPL-2.0 OR MIT)": true,
	} {
		if got := allowed(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}
