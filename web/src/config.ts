// The deployment's configuration.

export interface Config {
  /** Null without an issuer. */
  sign_in: { issuer: string; client_id: string; scopes: string } | null;
  /** What readers should know, for example that the demo's history is loading. */
  notice?: string;
  /** `gpucost serve` answers, with what only it has. */
  serve?: boolean;
  /** Recommendations and alerts can be decided on the page. */
  decisions?: boolean;
}

export async function fetchConfig(): Promise<Config> {
  const response = await fetch("config.json");
  if (!response.ok) throw new Error("The page's configuration could not be loaded.");
  return (await response.json()) as Config;
}
