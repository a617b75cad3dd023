// Asks the search of the site questions, in Node: `node search.cjs WORKER INDEX < questions`. WORKER is the script of the theme that the
// site searches with, INDEX its search_index.json, questions are a list in JSON. Prints for each question the results, best first: the
// location of the page, then those of its sections.
const fs = require("node:fs");
const vm = require("node:vm");

const [worker, index] = process.argv.slice(2);
let answered;
const page = { console, Map, Set, RegExp, TypeError, Promise, postMessage: (message) => answered(message) };
page.self = page;
page.addEventListener = (_, listener) => (page.ask = (data) => new Promise((done) => { answered = done; listener({ data }); }));
vm.runInNewContext(fs.readFileSync(worker, "utf8"), page);

(async () => {
  await page.ask({ type: 0, data: { ...JSON.parse(fs.readFileSync(index, "utf8")), options: { suggest: true } } });
  const results = [];
  for (const question of JSON.parse(fs.readFileSync(0, "utf8"))) {
    const { data } = await page.ask({ type: 2, data: question });
    results.push(data.items.map((sections) => sections.map((section) => section.location)));
  }
  console.log(JSON.stringify(results));
})();
