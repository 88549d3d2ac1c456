package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The types of an SPDX 2.3 document, as far as a Go program needs them.
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Relationships     []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string         `json:"SPDXID"`
		Name             string         `json:"name"`
		VersionInfo      string         `json:"versionInfo"`
		DownloadLocation string         `json:"downloadLocation"`
		FilesAnalyzed    bool           `json:"filesAnalyzed"`
		LicenseConcluded string         `json:"licenseConcluded"`
		LicenseDeclared  string         `json:"licenseDeclared"`
		CopyrightText    string         `json:"copyrightText"`
		Purpose          string         `json:"primaryPackagePurpose"`
		SourceInfo       string         `json:"sourceInfo,omitempty"`
		Checksums        []spdxChecksum `json:"checksums,omitempty"`
		ExternalRefs     []spdxRef      `json:"externalRefs"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const unstated = "NOASSERTION"

// writeSBOM writes the modules that a program of Go says it consists of, as an SPDX 2.3 document. It is equal for equal
// programs and SOURCE_DATE_EPOCH, which is its date.
func writeSBOM(out io.Writer, program, version string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH must be the commit's time in seconds: %w", err)
	}
	digest := sha256.Sum256(content)
	sum, name := hex.EncodeToString(digest[:]), filepath.Base(program)
	main := newPackage("SPDXRef-Package-0", info.Main.Path, version)
	main.Purpose, main.LicenseDeclared = "APPLICATION", "Apache-2.0"
	main.Checksums = []spdxChecksum{{"SHA256", sum}}
	d := spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: name,
		DocumentNamespace: "https://github.com/farhand/farhand/sbom/" + sum,
		CreationInfo: spdxCreation{
			time.Unix(seconds, 0).UTC().Format(time.RFC3339), []string{"Tool: farhand-deploy-release"},
		},
		Packages:      []spdxPackage{main},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", main.SPDXID}},
	}
	add := func(p spdxPackage) {
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, spdxRelationship{main.SPDXID, "DEPENDS_ON", p.SPDXID})
	}
	add(newPackage("SPDXRef-Package-1", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for n, m := range info.Deps {
		p := newPackage(fmt.Sprintf("SPDXRef-Package-%d", n+2), m.Path, m.Version)
		p.SourceInfo = "go.sum: " + m.Sum
		add(p)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(d)
}

func newPackage(id, name, version string) spdxPackage {
	return spdxPackage{
		SPDXID: id, Name: name, VersionInfo: version, DownloadLocation: unstated, LicenseConcluded: unstated,
		LicenseDeclared: unstated, CopyrightText: unstated, Purpose: "LIBRARY",
		ExternalRefs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + name + "@" + url.PathEscape(version)}},
	}
}
