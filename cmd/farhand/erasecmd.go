package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

func (a *application) eraseCommand() *cobra.Command {
	var r remote
	var user string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "erase --user USER",
		Short: "Erase everything stored about a user of your tenant, and print a receipt",
		Long: "Erases credentials, paired devices, sessions, conversations with their workspaces and files, grants,\n" +
			"approvals, records of calls, memories of tools and usage of a user, on all pods. The receipt says what is\n" +
			"kept and until when. It can be interrupted and repeated.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" {
				return errors.New("--user is required: the id of the user to erase")
			}
			receipt, err := eraseUser(cmd.Context(), r, user)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, receipt)
			}
			return a.printReceipt(receipt)
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	f.StringVar(&user, "user", "", "id of the user")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// eraseUser repeats the request while there is more to erase.
func eraseUser(ctx context.Context, r remote, user string) (wire.Receipt, error) {
	for {
		receipt, err := fetch[wire.Receipt](ctx, r, http.MethodDelete, "/api/users/"+url.PathEscape(user), nil, nil)
		if p, ok := errors.AsType[problem](err); !ok || p.Code != registry.CodeBusy {
			return receipt, err
		}
		if err := pause.For(ctx, time.Second); err != nil {
			return receipt, err
		}
	}
}

func (a *application) printReceipt(r wire.Receipt) error {
	fmt.Fprintf(a.out, "receipt %s of %s, subject %s\n", oneLine(r.ID, shownID), oneLine(r.At, shownID),
		oneLine(r.Subject, shownID))
	var cells [][]string
	for _, kind := range slices.Sorted(maps.Keys(r.Erased)) {
		if r.Erased[kind] > 0 {
			cells = append(cells, []string{kind, fmt.Sprint(r.Erased[kind]), ""})
		}
	}
	for _, k := range r.Kept {
		cells = append(cells, []string{k.What, "", cmp.Or(k.Until, "-")})
	}
	return table(a.out, []string{"WHAT", "ERASED", "KEPT UNTIL"}, cells)
}
