package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// platforms are those of the releases: the modules in the program differ.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// component is something in the program that others wrote.
type component struct {
	name, version string
	dir           string // has its licence
}

// moduleRoot returns the folder of go.mod.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// modules returns the modules of the packages of `go list` with args, on a platform, in order.
func modules(platform string, args ...string) ([]component, error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	const format = "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}"
	cmd := exec.Command("go", append([]string{"list", "-deps", "-tags", "nomsgpack", "-f", format}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s: %w", platform, err)
	}
	var all []component
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) == 3 {
			all = append(all, component{words[0], words[1], words[2]})
		}
	}
	return unique(all), nil
}

func unique(all []component) []component {
	slices.SortFunc(all, func(a, b component) int {
		return strings.Compare(a.name+" "+a.version, b.name+" "+b.version)
	})
	return slices.Compact(all)
}

// programModules returns the modules in the program on any platform, and Go itself.
func programModules() ([]component, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	all := []component{{"go", runtime.Version(), strings.TrimSpace(string(out))}}
	for _, platform := range platforms {
		of, err := modules(platform, "github.com/farhand/farhand/cmd/farhand")
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return unique(all), nil
}

// npmPackage is an entry of package-lock.json.
type npmPackage struct {
	Version string `json:"version"`
	License string `json:"license"`
	Dev     bool   `json:"dev"`
}

// pagePackages returns the npm packages in the pages that the program serves, by their folder below web.
func pagePackages(root string) (map[string]npmPackage, error) {
	text, err := os.ReadFile(filepath.Join(root, "web", "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]npmPackage `json:"packages"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, err
	}
	for dir, p := range lock.Packages {
		if dir == "" || p.Dev {
			delete(lock.Packages, dir)
		}
	}
	return lock.Packages, nil
}

// licenceFiles returns the names of the files in a folder that have a licence or a notice.
func licenceFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		for _, prefix := range []string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"} {
			if e.Type().IsRegular() && strings.HasPrefix(name, prefix) && filepath.Ext(name) != ".GO" &&
				filepath.Ext(name) != ".DOCS" { // of documents, which are not in the program
				names = append(names, e.Name())
				break
			}
		}
	}
	return names, nil
}

// phrases tell the licences that Farhand accepts, by their SPDX identifiers. The first that fits counts.
var phrases = []struct{ id, phrase string }{
	{"MPL-2.0", "mozilla public license version 2.0"},
	{"Apache-2.0", "apache license version 2.0, january 2004"},
	{"Apache-2.0", "licensed under the apache license, version 2.0"},
	{"BSD-3-Clause", "neither the name of"},
	{"BSD-3-Clause", "redistribution and use in source and binary forms of libcap/psx, with or without modification"},
	{"Unlicense", "this is free and unencumbered software released into the public domain"},
	{"BSD-2-Clause", "redistribution and use in source and binary forms, with or without modification, are permitted"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"ISC", "permission to use, copy, modify, and"},
}

// allowed reports whether programs under a licence, named as npm does, may be in the product.
func allowed(spdx string) bool {
	for id := range strings.SplitSeq(strings.Trim(spdx, "()"), " OR ") {
		for _, p := range phrases {
			if p.id == id {
				return true
			}
		}
	}
	return false
}

// licenceOf returns the SPDX identifier of a licence's text, empty if it is not one of phrases.
func licenceOf(text []byte) string {
	var plain strings.Builder
	words := bufio.NewScanner(bytes.NewReader(bytes.ToLower(text)))
	words.Split(bufio.ScanWords)
	for words.Scan() {
		plain.Write(append(words.Bytes(), ' '))
	}
	for _, p := range phrases {
		if strings.Contains(plain.String(), p.phrase) {
			return p.id
		}
	}
	return ""
}

// licences returns the SPDX identifiers of the licences in a component's folder.
func (c component) licences() ([]string, error) {
	names, err := licenceFiles(c.dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return nil, err
		}
		upper := strings.ToUpper(name)
		if strings.HasPrefix(upper, "NOTICE") || strings.HasPrefix(upper, "PATENTS") {
			continue
		}
		id := licenceOf(text)
		if id == "" {
			return nil, fmt.Errorf("%s %s: %s is none of the licences that are accepted; replace the module, or add "+
				"the licence to phrases in deploy/release/licences.go", c.name, c.version, name)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s %s: there is no licence in %s", c.name, c.version, c.dir)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
