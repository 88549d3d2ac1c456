package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// writeNotices writes the licences and notices of everything in the program: modules of Go, and packages of npm in its
// pages. Those must be installed (npm ci in web).
func writeNotices(out io.Writer) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	all, err := programModules()
	if err != nil {
		return err
	}
	packages, err := pagePackages(root)
	if err != nil {
		return err
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		_, name, _ := strings.Cut(dir, "node_modules/")
		all = append(all, component{"npm: " + name, packages[dir].Version, filepath.Join(root, "web", dir)})
	}
	fmt.Fprintln(out, "Farhand contains the following software of others.")
	for _, c := range all {
		if err := c.write(out, packages); err != nil {
			return err
		}
	}
	return nil
}

func (c component) write(out io.Writer, packages map[string]npmPackage) error {
	fmt.Fprintf(out, "\n%s\n%s %s\n", strings.Repeat("=", 80), c.name, c.version)
	names, err := licenceFiles(c.dir)
	if err != nil {
		return fmt.Errorf("%w; install the packages of the pages with: npm ci --prefix web", err)
	}
	if len(names) == 0 {
		_, dir, npm := strings.Cut(filepath.ToSlash(c.dir), "/web/")
		if !npm {
			return fmt.Errorf("%s: there is no licence in %s", c.name, c.dir)
		}
		fmt.Fprintf(out, "\nLicence, as the package declares it: %s\n", packages[dir].License)
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "\n--- %s\n\n%s\n", name, strings.TrimSpace(string(text))); err != nil {
			return err
		}
	}
	return nil
}
