/** What `kvlab site` wrote into the page: files and their sizes, choices of the form, shipped scenarios. */
export const settings = JSON.parse(document.getElementById("kvlab-lab").textContent);
