package desktop

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf16"
)

// powershell is the one that Windows has. Only this version reaches the services of Windows without modules.
const powershell = "powershell.exe"

//go:embed scripts/*.ps1
var scripts embed.FS

// argumentsVariable is the name of the file with a script's arguments, in JSON. So no argument becomes a part of a
// script, none is too long, and none depends on the encoding of the console.
const argumentsVariable = "DESKTOP_ARGUMENTS"

// beginning reads the arguments and sets the encoding of the output. Errors end the script.
const beginning = `$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
[Console]::OutputEncoding = New-Object Text.UTF8Encoding $false
$a = Get-Content -Raw -Encoding UTF8 -LiteralPath $env:` + argumentsVariable + ` | ConvertFrom-Json
`

// powershell runs a script of the folder scripts, and returns what it prints.
func (d *Desktop) powershell(ctx context.Context, script string, args any) ([]byte, error) {
	return d.powershellFor(ctx, startTime, script, args)
}

// powershellFor is powershell for a script that may take longer.
func (d *Desktop) powershellFor(
	ctx context.Context, time time.Duration, script string, args any,
) (out []byte, err error) {
	text, err := scripts.ReadFile("scripts/" + script + ".ps1")
	if err != nil {
		return nil, err
	}
	arguments, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	err = inFolder(func(dir string) error {
		file := filepath.Join(dir, "arguments.json")
		if err := os.WriteFile(file, arguments, 0o600); err != nil {
			return err
		}
		out, err = d.run(ctx, program{
			path: d.look(powershell), time: time, env: []string{argumentsVariable + "=" + file},
			args: []string{
				"-NoProfile", "-NonInteractive", "-STA", "-ExecutionPolicy", "Bypass", "-EncodedCommand",
				encodeScript(beginning + string(text)),
			},
		})
		if err != nil {
			return fmt.Errorf("%s: %w", script, err)
		}
		return nil
	})
	return bytes.TrimPrefix(out, []byte("\ufeff")), err
}

// encodeScript returns a script as -EncodedCommand takes it: UTF-16, little endian, in base64.
func encodeScript(text string) string {
	return base64.StdEncoding.EncodeToString(littleEndian(text))
}

// littleEndian returns a text in UTF-16, little endian.
func littleEndian(text string) (b []byte) {
	for _, unit := range utf16.Encode([]rune(text)) {
		b = append(b, byte(unit), byte(unit>>8))
	}
	return b
}
