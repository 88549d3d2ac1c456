package publicnet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/publicnet"
)

// refusedURLs are spellings of what must not be loaded. The first ones are of private networks.
var (
	privateURLs = []string{
		"http://127.0.0.1/", "http://127.0.0.1:8080/admin", "http://127.8.9.10/", "https://10.0.0.1/",
		"http://172.16.0.1/", "http://192.168.1.1/", "http://100.64.0.1/", "http://[::1]/", "http://[fc00::1]/",
		"http://[fd12:3456::1]:80/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://localhost/",
		"http://LOCALHOST:9090/", "http://localhost./", "http://a.localhost/", "http://127.0.0.1./",
		"http://localhost.localdomain/", "http://ip6-localhost/", "http://①②⑦.⓪.⓪.①/",
		"http://127。0。0。1/",
		"http://ｌｏｃａｌｈｏｓｔ/",
	}
	refusedURLs = []string{
		"http://127.1/", "http://127.0.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/",
		"http://0177.0.0.1/", "http://017700000001/", "http://0/", "http://0.0.0.0/", "http://[::]/",
		"http://010.0.0.1/", "http://1.2.3.4.5/", "http://127.0.0.0x1/", "http://4294967297/", "http://...../",
		"http://169.254.169.254/latest/meta-data/", "http://0xa9fea9fe/", "http://2852039166/",
		"http://[::ffff:169.254.169.254]/", "http://[::ffff:a9fe:a9fe]/", "http://[fd00:ec2::254]/",
		"http://100.100.100.200/", "http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[64:ff9b::7f00:1]/",
		"http://[2002:7f00:1::]/", "http://[::127.0.0.1]/", "http://192.0.0.192/", "http://168.63.129.16/",
		"http://metadata.google.internal/", "http://METADATA.google.internal./", "http://metadata/",
		"http://instance-data/", "http://user:pass@example.com/", "http://example.com@127.0.0.1/",
		"http://example.com\\@127.0.0.1/", "http:\\\\127.0.0.1\\", "http:127.0.0.1/", "http:///127.0.0.1/",
		"http://%31%32%37.0.0.1/", "http://127.0.0.1%2f@example.com/", "http:// 127.0.0.1/", "http://127.0.0.1\t/",
		"http://exa\u200bmple.com/", "//example.com/", "example.com", "/etc/passwd", "", "http://", "https://:443/",
		"file:///etc/passwd", "FILE:///etc/passwd", "data:text/html,<script>1</script>", "blob:https://example.com/1",
		"view-source:https://example.com/", "javascript:alert(1)", "about:blank", "chrome://settings",
		"ftp://example.com/",
		"ws://example.com/", "gopher://example.com/", "intent://example.com#Intent;end", "content://contacts",
		"http://example.com/" + strings.Repeat("a", 9000),
	}
)

func TestURLs(t *testing.T) {
	for _, url := range append(privateURLs, refusedURLs...) {
		if err := (publicnet.Guard{}).CheckURL(url); err == nil {
			t.Errorf("%.80q is allowed", url)
		} else if strings.Contains(err.Error(), "pass@") || strings.Contains(err.Error(), "publicnet") {
			t.Errorf("%q tells a password, or is no text for people", err)
		}
	}
	if err := (publicnet.Guard{}).CheckURL("http://127.0.0.1/"); !errors.Is(err, publicnet.ErrRefused) {
		t.Errorf("refused with %v", err)
	}
	private := publicnet.Guard{AllowPrivate: true}
	for _, url := range privateURLs {
		if err := private.CheckURL(url); err != nil {
			t.Errorf("%q is refused although private addresses are allowed: %v", url, err)
		}
	}
	for _, url := range refusedURLs {
		if err := private.CheckURL(url); err == nil {
			t.Errorf("%.80q is allowed with private addresses", url)
		}
	}
	for _, url := range []string{
		"https://example.com", "http://example.com:8080/a?b=c#d", "https://bücher.example/", "https://1.1.1.1/",
		"https://[2606:4700:4700::1111]/", "https://example.com./",
		"https://a_b.example.com/", "https://8ball.example/",
		"HTTPS://EXAMPLE.COM/%7Euser",
	} {
		if err := (publicnet.Guard{}).CheckURL(url); err != nil {
			t.Errorf("%q is refused: %v", url, err)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, url := range append(privateURLs[:5:5], refusedURLs[:20]...) {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		if (publicnet.Guard{}).CheckURL(url) == nil && (publicnet.Guard{AllowPrivate: true}).CheckURL(url) != nil {
			t.Errorf("%q is allowed only without private addresses", url)
		}
	})
}
