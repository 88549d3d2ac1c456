package main

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
)

// queueCommand shows and changes what waits for devices that sleep.
func (a *application) queueCommand() *cobra.Command {
	var asJSON bool
	list := a.remoteStep("list DEVICE", "List the calls that wait for a device, in order; the first may be running", 1,
		func(ctx context.Context, r remote, args []string) error { return a.listQueue(ctx, r, args[0], asJSON) })
	list.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd := &cobra.Command{
		Use: "queue", Short: "List and cancel the calls that wait for a sleeping device",
		Example: "  farhand sessions --presence sleeping\n  farhand queue list phone-7\n" +
			"  farhand queue cancel 57b9036c-aae2-43d4-9891-bb9e614fc2f8",
	}
	cmd.AddCommand(list, a.remoteStep("cancel CALL...", "Cancel calls by their ids", -1,
		func(ctx context.Context, r remote, args []string) error {
			for _, id := range args {
				if err := r.call(ctx, http.MethodDelete, "/api/calls/"+url.PathEscape(id), nil); err != nil {
					return err
				}
			}
			return nil
		}))
	return cmd
}

func (a *application) listQueue(ctx context.Context, r remote, device string, asJSON bool) error {
	queue, err := fetch[wire.QueuedCalls](ctx, r, http.MethodGet, devicePath(device)+"/queue", nil, nil)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.out, queue)
	}
	var cells [][]string
	for _, c := range queue.Calls {
		cells = append(cells, []string{
			strconv.Itoa(c.Position), c.CallID, c.Tool, c.UserID, string(c.State), c.ExpiresAt,
		})
	}
	return table(a.out, []string{"PLACE", "CALL", "TOOL", "USER", "STATE", "EXPIRES"}, cells)
}
