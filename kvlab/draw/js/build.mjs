/** Bundle the player into one module without imports, and its style; see package.json. */
import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const out = process.argv[2] ?? here("dist");

const common = { bundle: true, minify: true, charset: "utf8", target: "es2022", logLevel: "warning" };

await build({ ...common, entryPoints: [here("src/player.css")], outfile: `${out}/player.css` });
await build({ ...common, entryPoints: [here("src/pair.css")], outfile: `${out}/pair.css` });
await build({ ...common, entryPoints: [here("src/race.css")], outfile: `${out}/race.css` });
for (const [source, name] of [["index", "player"], ["race", "race"]]) {
  await build({
    ...common,
    entryPoints: [here(`src/${source}.js`)],
    outfile: `${out}/${name}.js`,
    format: "esm",
    legalComments: "none",
  });
}
