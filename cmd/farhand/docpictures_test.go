package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
)

// docPictureFolder is the variable that names the folder of the pictures in docs. `make pictures` sets it. Without it,
// none are taken.
const docPictureFolder = "DOC_PICTURES"

const (
	picturesOfDocs   = "../../docs/pictures"
	mostDocPictures  = 8
	mostPictureBytes = 60 << 10
)

var (
	deskScreen  = emulation.SetDeviceMetricsOverrideParams{Width: 1040, Height: 640, DeviceScaleFactor: 1.5}
	callScreen  = emulation.SetDeviceMetricsOverrideParams{Width: 1040, Height: 800, DeviceScaleFactor: 1.5}
	phoneScreen = emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 760, DeviceScaleFactor: 2, Mobile: true}
)

// docPictures are the pictures of the pages in docs, and the screens that show them.
var docPictures = map[string]emulation.SetDeviceMetricsOverrideParams{
	"console-devices": deskScreen, "console-pairing": deskScreen, "console-call": callScreen,
	"console-pods": deskScreen, "console-approval": phoneScreen, "device-page": phoneScreen,
	"device-question": phoneScreen,
}

// docPicture writes what the page shows as a picture of docs. The page keeps the picture's screen.
func (b *pageBrowser) docPicture(name string) {
	b.Helper()
	screen, known := docPictures[name]
	if !known {
		b.Errorf("%s is not in docPictures", name)
	}
	folder := os.Getenv(docPictureFolder)
	if folder == "" {
		return
	}
	tellBrowser(b, emulation.SetDeviceMetricsOverride, screen)
	b.until("a layout", nextFrame)
	b.until("questions can be answered", `!document.querySelector(".prompts button[type=button]:disabled")`)
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	quality := int64(70)
	taken, err := cdp.Call(ctx, b.wire, page.CaptureScreenshot,
		page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".webp"), taken.Data, 0o644)
	}
	if err != nil {
		b.Error(err)
	}
}

// TestPicturesInDocs: docs show the pictures that `make pictures` writes, all of them and no others, and they are
// small.
func TestPicturesInDocs(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	image := regexp.MustCompile(`(?:\]\(|src=")[^)"\s]*?([a-z-]+)\.(webp|png|jpe?g|gif)[)"]`)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range image.FindAllStringSubmatch(string(text), -1) {
			if _, known := docPictures[found[1]]; !known || found[2] != "webp" {
				t.Errorf("%s shows %s, which `make pictures` does not write", path, found[0])
			}
			shown[found[1]] = true
		}
	}
	files, err := filepath.Glob(picturesOfDocs + "/*.[wpjg]*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > mostDocPictures {
		t.Errorf("%d pictures, more than %d", len(files), mostDocPictures)
	}
	for _, path := range files {
		if _, known := docPictures[strings.TrimSuffix(filepath.Base(path), ".webp")]; !known {
			t.Errorf("`make pictures` does not write %s", path)
		}
	}
	tests := testSources(t)
	for name := range docPictures {
		info, err := os.Stat(filepath.Join(picturesOfDocs, name+".webp"))
		switch {
		case err != nil:
			t.Errorf("run `make pictures`: %v", err)
		case info.Size() > mostPictureBytes:
			t.Errorf("%s has %d bytes, more than %d", name, info.Size(), mostPictureBytes)
		}
		if !shown[name] || !strings.Contains(tests, `docPicture("`+name+`")`) {
			t.Errorf("no page of docs shows %s, or no test takes it", name)
		}
	}
}

// testSources returns the tests of this package.
func testSources(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
