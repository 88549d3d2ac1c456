// Command device-go makes this machine a device with the tool count_files: device-go URL DEVICE. FARHAND_TOKEN is the
// gateway's token, if it has one. DEVICE.jsonl keeps calls and answers over a restart: no call runs twice.
package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/farhand/farhand/ws/client"
)

var countFiles = client.Tool{
	Name: "count_files", Description: "Count the files in a folder of this machine and in all folders below it.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"folder":{"type":"string"}},"required":["folder"]}`),
}

// count runs a call. ctx ends when the call is cancelled.
func count(ctx context.Context, call client.Call) (any, error) {
	var args struct{ Folder string }
	if err := call.Bind(&args); err != nil {
		return nil, err
	}
	files := 0
	err := filepath.WalkDir(args.Folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			if files++; files%1000 == 0 {
				call.Progress(float64(files), 0, "counting "+filepath.Dir(path))
			}
		}
		return ctx.Err()
	})
	return map[string]int{"files": files}, err
}

func run(ctx context.Context, url, id string) error {
	device, err := client.New(url, client.WithDevice(id, id, runtime.GOOS),
		client.WithToken(os.Getenv("FARHAND_TOKEN")), client.WithJournal(id+".jsonl"),
		client.WithTool(countFiles, count))
	if err != nil {
		return err
	}
	return device.Run(ctx) // reconnects by itself
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: device-go URL DEVICE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); ctx.Err() == nil {
		log.Fatal(err)
	}
}
