/** Where the console is served. Addresses of its views are relative to it. */
export const base = "/console";
