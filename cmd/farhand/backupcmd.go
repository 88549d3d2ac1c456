package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/sealed"
)

const passphraseFlag = "passphrase-file"

func (a *application) exportCommand() *cobra.Command {
	var passphraseFile string
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write what is in Redis and cannot be made again to an encrypted file",
		Long: "Writes credentials, pairings, grants, conversations, audit logs, usage and revocations of all tenants\n" +
			"to an encrypted file. FARHAND_REDIS_URL and the other FARHAND_REDIS_ variables say from where. Pods may run.\n" +
			"The file has no secret of an API key or a device, only digests, but all conversations.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			passphrase, err := readPassphrase(passphraseFile)
			if err != nil {
				return err
			}
			counts, err := a.export(cmd.Context(), args[0], passphrase)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "exported %s\n", counted(counts))
			return err
		},
	}
	passphraseVar(cmd, &passphraseFile)
	return cmd
}

func (a *application) importCommand() *cobra.Command {
	var passphraseFile string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Write a file of farhand export back into Redis, or take over an OpenClaw installation",
		Long: "Writes a file of farhand export into the Redis of FARHAND_REDIS_URL. It first reads the file to its end:\n" +
			"a wrong passphrase or a damaged file changes nothing. What is there already stays, so the command can be\n" +
			"repeated, and pods may run. Keys that were revoked after the export work again: revoke them again.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			passphrase, err := readPassphrase(passphraseFile)
			if err != nil {
				return err
			}
			return a.importFile(cmd.Context(), cmd.OutOrStdout(), args[0], passphrase, overwrite)
		},
	}
	passphraseVar(cmd, &passphraseFile)
	cmd.Flags().BoolVar(&overwrite, "overwrite", false,
		"replace documents and conversations that have changed since the export")
	cmd.AddCommand(a.importOpenClawCommand())
	return cmd
}

func passphraseVar(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, passphraseFlag, "", "file with the passphrase, at least "+
		fmt.Sprint(sealed.MinPassphrase)+" bytes; spaces and newlines at its end do not count")
	_ = cmd.MarkFlagRequired(passphraseFlag) // fails only for an unknown flag
}

func readPassphrase(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", passphraseFlag, err)
	}
	return strings.TrimRight(string(text), " \t\r\n"), nil
}

// export writes a file beside the named one, and renames it when it is whole.
func (a *application) export(ctx context.Context, name, passphrase string) (counts map[string]int, err error) {
	cfg, err := farhand.LoadConfig(a.environ)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part") // for this user only
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // it may be closed
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	w, err := sealed.Writer(f, passphrase)
	if err != nil {
		return nil, err
	}
	if counts, err = farhand.Export(ctx, cfg, w); err != nil {
		return nil, err
	}
	if err := errors.Join(w.Close(), f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	return counts, os.Rename(f.Name(), name) // closed: Windows renames no open file
}

// importFile reads a file twice: to check it, and to import it.
func (a *application) importFile(ctx context.Context, out io.Writer, name, passphrase string, overwrite bool) error {
	cfg, err := farhand.LoadConfig(a.environ)
	if err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := sealed.Reader(f, passphrase)
	if err == nil {
		err = farhand.CheckExport(r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was imported", name, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if r, err = sealed.Reader(f, passphrase); err != nil {
		return err
	}
	done, err := farhand.Import(ctx, cfg, r, overwrite)
	if err != nil {
		return fmt.Errorf("%w\n  a part was imported; run the command again", err)
	}
	for _, line := range []struct {
		what   string
		counts map[string]int
	}{
		{"written", done.Written}, {"there already", done.Same}, {"changed since the export, and kept", done.Kept},
		{"expired since the export", done.Expired},
	} {
		if len(line.counts) > 0 {
			fmt.Fprintf(out, "%s: %s\n", line.what, counted(line.counts))
		}
	}
	return nil
}

// counted lists counts by name.
func counted(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d keys of %s", counts[name], name))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
