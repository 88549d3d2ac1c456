// Package typo measures how far apart two names are, for "did you mean".
package typo

// Distance returns the number of characters to insert, delete or replace to make one name the other (Levenshtein). Its
// work grows with the product of the lengths: the caller bounds them.
func Distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1) // the distances from the characters of a seen so far to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i, r := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range to {
			replaced := diagonal
			if r != s {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(to)]
}
