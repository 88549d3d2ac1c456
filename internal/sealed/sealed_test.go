package sealed

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

const passphrase = "correct horse battery staple"

func seal(t *testing.T, text string) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := newWriter(&file, passphrase, 10) // quick
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(w, text)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func open(file []byte, passphrase string) (string, error) {
	r, err := Reader(bytes.NewReader(file), passphrase)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), err
}

func TestOnlyThePassphraseOpensAWholeFile(t *testing.T) {
	text := strings.Repeat("secret ", 1000)
	file := seal(t, text)
	var whole bytes.Buffer
	w, err := Writer(&whole, passphrase)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Reader(&whole, passphrase); err == nil {
		t.Error("a file without an end is read")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := open(file, passphrase); got != text || err != nil {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
	if bytes.Contains(file, []byte("secret")) {
		t.Error("the text is in the file")
	}
	if _, err := open(file, passphrase+"!"); !errors.Is(err, ErrPassphrase) {
		t.Errorf("another passphrase: %v", err)
	}
	changed := bytes.Clone(file)
	changed[len(changed)-20] ^= 1
	for name, broken := range map[string][]byte{
		"empty": nil, "cut": file[:len(file)-1], "half": file[:len(file)/2], "longer": append(bytes.Clone(file), 0),
		"changed": changed,
	} {
		if _, err := open(broken, passphrase); err == nil {
			t.Errorf("a file that is %s is read", name)
		}
	}
	if _, err := Writer(io.Discard, "short"); err == nil {
		t.Error("a short passphrase is taken")
	}
}
