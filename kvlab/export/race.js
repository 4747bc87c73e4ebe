// The page's own part, after the race's module: shows the race that lies in the page, playing.
{
  const { race, words } = JSON.parse(document.getElementById("kvlab-run").textContent);
  kvlab.mountRace(document.querySelector("main"), race, { words, playing: true });
}
