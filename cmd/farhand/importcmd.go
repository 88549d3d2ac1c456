package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/cmd/farhand/openclaw"
)

// importBatch is how many nodes one request imports, as the API allows.
const importBatch = 50

func (a *application) importOpenClawCommand() *cobra.Command {
	var user, policyFile string
	var dryRun bool
	cmd := a.remoteStep("openclaw DIR", "Take over the paired nodes and rules of an OpenClaw installation", 1,
		func(ctx context.Context, r remote, args []string) error {
			if _, err := os.Stat(policyFile); policyFile != "" && err == nil {
				return fmt.Errorf("the file %s exists: give --policy another name, or remove it", policyFile)
			}
			in, err := openclaw.Read(args[0])
			if err != nil {
				return err
			}
			var states map[string]wire.ImportedState
			if !dryRun {
				if states, err = importNodes(ctx, r, user, in.Nodes); err != nil {
					return err
				}
			}
			if err := a.reportImport(in, states); err != nil {
				return err
			}
			return a.writePolicy(in.Policy, policyFile)
		})
	cmd.Long = "Reads the state directory of an OpenClaw gateway (~/.openclaw), which must not be running, and changes\n" +
		"nothing there. Its paired nodes become paired devices of your tenant: point a node to the new gateway, and it\n" +
		"connects with the token that it has. Allowed and denied commands and the rules of exec become a policy, which\n" +
		"is printed or written to --policy. The report lists what is left out. The command can be repeated. For admins."
	f := cmd.Flags()
	f.BoolVar(&dryRun, "dry-run", false, "only report; needs no gateway")
	f.StringVar(&user, "user", "", "owner of the nodes (default: you)")
	f.StringVar(&policyFile, "policy", "", "file to write the policy to, which must not exist (default: print it)")
	return cmd
}

// importNodes sends the nodes to the gateway, and returns what became of each by its device id.
func importNodes(
	ctx context.Context, r remote, user string, nodes []openclaw.Node,
) (map[string]wire.ImportedState, error) {
	states := make(map[string]wire.ImportedState)
	for batch := range slices.Chunk(nodes, importBatch) {
		body := wire.ImportRequest{User: user}
		for _, n := range batch {
			body.Nodes = append(body.Nodes, wire.ImportedNode{
				PublicKey: base64.RawURLEncoding.EncodeToString(n.PublicKey), TokenDigest: n.TokenDigest,
				Name: n.Name, Tools: n.Tools(),
			})
		}
		report, err := fetch[wire.ImportReport](ctx, r, http.MethodPost, "/api/devices/import", nil, body)
		if err != nil {
			return nil, fmt.Errorf("%d of %d nodes were sent; run the command again for the others: %w", len(states),
				len(nodes), err)
		}
		for _, state := range report.Nodes {
			states[state.DeviceID] = state
		}
	}
	return states, nil
}

// reportImport prints what was imported and what was left out. Without states, nothing was sent.
func (a *application) reportImport(in openclaw.Installation, states map[string]wire.ImportedState) error {
	for _, warning := range in.Warnings {
		if _, err := fmt.Fprintf(safeOn(a.out), "warning: %s\n", warning); err != nil {
			return err
		}
	}
	if len(in.Nodes) == 0 {
		_, err := fmt.Fprintln(a.out, "no paired nodes: is this the state directory of a gateway? A node has one, too.")
		if err != nil {
			return err
		}
	}
	var cells [][]string
	for _, n := range in.Nodes {
		state := states[n.DeviceID]
		if states == nil {
			state.Status = "not sent"
		}
		cells = append(cells, []string{
			n.DeviceID, claimed(n.Name), claimed(n.Platform), strings.Join(n.Tools(), ","), state.Status, state.Reason,
		})
	}
	if err := table(a.out, []string{"NODE", "NAME", "PLATFORM", "TOOLS", "STATUS", "REASON"}, cells); err != nil {
		return err
	}
	for _, why := range in.LeftOut {
		if _, err := fmt.Fprintf(safeOn(a.out), "left out: %s\n", strconv.QuoteToGraphic(why)); err != nil {
			return err
		}
	}
	return nil
}

// writePolicy writes the policy to a new file or, without a name, prints it.
func (a *application) writePolicy(p openclaw.Policy, path string) error {
	if path == "" {
		_, err := fmt.Fprintf(safeOn(a.out), "\npolicy:\n%s", p.YAML())
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(p.YAML())
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
