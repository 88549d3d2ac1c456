package main

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farhand/farhand/agent/access/budget"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/bytesize"
	"github.com/farhand/farhand/registry"
)

func (a *application) tenantsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "List tenants, create their first keys and set their budgets",
		Long: "For fleet operators, who see the tenants of a fleet in numbers and nothing of their content. The first\n" +
			"operator's key: farhand keys create --role operator, with FARHAND_TOKEN or --store (docs/tenants.md).",
	}
	cmd.AddCommand(a.tenantsListCommand(), a.tenantsShowCommand(), a.tenantsKeyCommand(), a.tenantsBudgetCommand())
	return cmd
}

func (a *application) tenantsListCommand() *cobra.Command {
	var r remote
	return listing[wire.Tenant]{
		name:   "tenants",
		header: []string{"TENANT", "SINCE", "DEVICES", "CALLS", "BYTES", "TOKENS", "MONEY", "BUDGET"},
		row: func(t wire.Tenant) []string {
			row := []string{t.Tenant, t.Since, strconv.FormatInt(t.Devices, 10)}
			return append(append(row, spentCells(t.Today)...), budget.Text(registry.DayBudget(t.Budget)))
		},
	}.command(a, &r, &cobra.Command{
		Use: "list", Short: "List the tenants, with their devices, what they spent today, and their budgets",
	})
}

// spentCells returns calls, bytes, tokens and money.
func spentCells(s registry.Spent) (cells []string) {
	for i, n := range s.Amounts() {
		_, text, _ := strings.Cut(budget.AmountText(registry.SpentKinds[i], n), " ")
		if registry.SpentKinds[i] != budget.Money {
			text = strconv.FormatInt(n, 10)
		}
		cells = append(cells, text)
	}
	return cells
}

func tenantPath(name string) string { return "/api/tenants/" + url.PathEscape(name) }

func (a *application) tenantsShowCommand() *cobra.Command {
	var r remote
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show TENANT", Short: "Show a tenant's numbers, by day", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := fetch[wire.TenantDetails](cmd.Context(), r, http.MethodGet, tenantPath(args[0]), nil, nil)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.out, t)
			}
			fmt.Fprintf(safeOn(a.out), "%s: %d devices, budget: %s\n", oneLine(t.Tenant.Tenant, shownID), t.Devices,
				budget.Text(registry.DayBudget(t.Budget)))
			var cells [][]string
			for _, d := range t.Days {
				cells = append(cells, append([]string{d.Day}, spentCells(d.Spent)...))
			}
			return table(a.out, []string{"DAY", "CALLS", "BYTES", "TOKENS", "MONEY"}, cells)
		},
	}
	r.flags(cmd.Flags(), a.environ)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *application) tenantsKeyCommand() *cobra.Command {
	var r remote
	var k wire.FirstKeyRequest
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "key TENANT",
		Short: "Create the first key of a tenant, with the role admin, and print it once",
		Long: "Creates the first key of a new tenant and prints it. It fails if the tenant has keys or devices, or was\n" +
			"used already. Its admin should create a key of their own with it, and revoke it.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if life < 0 || life > 0 && life < time.Second {
				return fmt.Errorf("--expires must be at least 1s, for example 30d")
			}
			k.ExpiresIn = int64(life / time.Second)
			made, err := fetch[keyRow](cmd.Context(), r, http.MethodPost, tenantPath(args[0])+"/keys", nil, k)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.err, "key %s of tenant %s. It is not shown again:\n", oneLine(made.ID, shownID),
				oneLine(made.Tenant, shownID))
			_, err = fmt.Fprintln(safeOn(a.out), made.Key)
			return err
		},
	}
	r.flags(cmd.Flags(), a.environ)
	cmd.Flags().StringVar(&k.Name, "name", "", "display name")
	durationVar(cmd.Flags(), &life, "expires", 0, "lifetime, such as 12h or 30d; 0: as long as it is used")
	return cmd
}

func (a *application) tenantsBudgetCommand() *cobra.Command {
	var r remote
	var whole, each map[string]string
	var warn int64
	var none bool
	cmd := &cobra.Command{
		Use:   "budget TENANT",
		Short: "Replace what a tenant may spend on a day (UTC)",
		Long: "Replaces the budget of a tenant: calls, bytes, tokens of models, and money for them in the currency of\n" +
			"FARHAND_MODEL_PRICES_FILE. What was spent today counts.",
		Example: "  farhand tenants budget acme --limit calls=100000,money=25.50 --each calls=5000,bytes=1GiB",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if none == (len(whole)+len(each) > 0) {
				return fmt.Errorf("give --limit or --each, or --none to remove all limits")
			}
			set := wire.DayBudget{WarnPercent: warn}
			var err, err2 error
			set.Tenant, err = parseLimits("--limit", whole)
			set.Identity, err2 = parseLimits("--each", each)
			if err = cmp.Or(err, err2); err != nil {
				return err
			}
			t, err := fetch[wire.Tenant](cmd.Context(), r, http.MethodPut, tenantPath(args[0])+"/budget", nil, set)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(safeOn(a.out), "%s: %s\n", oneLine(t.Tenant, shownID),
				budget.Text(registry.DayBudget(t.Budget)))
			return err
		},
	}
	f := cmd.Flags()
	r.flags(f, a.environ)
	f.StringToStringVar(&whole, "limit", nil, "what the whole tenant may spend: calls, bytes, tokens, money")
	f.StringToStringVar(&each, "each", nil, "what each identity of it may spend")
	f.Int64Var(&warn, "warn", 0, "percent of a limit at which the gateway warns (default 80)")
	f.BoolVar(&none, "none", false, "remove all limits")
	return cmd
}

// parseLimits reads limits by kind.
func parseLimits(flag string, given map[string]string) (registry.Spent, error) {
	var amounts [len(registry.SpentKinds)]int64
	for kind, text := range given {
		i := slices.Index(registry.SpentKinds[:], kind)
		if i < 0 {
			return registry.Spent{}, fmt.Errorf("%s: there is no limit of %q; use %s", flag, kind,
				strings.Join(registry.SpentKinds[:], ", "))
		}
		n, err := parseAmount(kind, text)
		if err != nil || n <= 0 {
			return registry.Spent{}, fmt.Errorf("%s: %s=%s is not an amount above 0", flag, kind, text)
		}
		amounts[i] = n
	}
	return registry.SpentOf(amounts), nil
}

// parseAmount reads an amount: bytes may have a unit, money up to six decimal places.
func parseAmount(kind, text string) (int64, error) {
	switch kind {
	case "bytes":
		size, err := bytesize.Parse(text)
		return int64(min(size, math.MaxInt64)), err
	case budget.Money:
		const places, million = 6, 1_000_000
		whole, decimals, _ := strings.Cut(text, ".")
		if len(decimals) > places {
			return 0, strconv.ErrSyntax
		}
		n, err := strconv.ParseUint(whole, 10, 63) // without a sign: "-0.5" would lose it
		m, err2 := strconv.ParseUint(decimals+strings.Repeat("0", places-len(decimals)), 10, 32)
		if n > math.MaxInt64/million-1 {
			return 0, strconv.ErrRange
		}
		return int64(n*million + m), cmp.Or(err, err2)
	default:
		return strconv.ParseInt(text, 10, 64)
	}
}
