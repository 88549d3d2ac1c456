/** Where the console is served. Addresses of its views are relative to it. */
export const base = "/console";
/** Where the identity provider sends people back to. */
export const signInPath = "/sign-in";
