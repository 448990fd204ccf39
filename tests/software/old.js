// Packages of npm, of which old versions do not sync what they write:
//
//     node old.js run DIR PACKAGE VERSION
//     node old.js check DIR PACKAGE VERSION
//
// `run` keeps the records 1 to 4, one after the other; `check` fails unless it finds the records 1 to n for some n.
'use strict'
const fs = require('fs')
const path = require('path')
const [mode, dir, name, version] = process.argv.slice(2)
const load = () => require(path.resolve(`npm-${name}-${version}`, 'node_modules', name))
const padding = '-'.repeat(5000)
const numbers = (count) => Array.from({ length: count }, (_, place) => place + 1)

function fail (text) {
  console.error(text)
  process.exit(1)
}

// A file that is written anew with each record.
function judge (text) {
  const { records } = JSON.parse(text)
  if (JSON.stringify(records) !== JSON.stringify(numbers(records.length))) fail(`records ${records}`)
}

const packages = {
  'write-file-atomic': {
    run () {
      const write = load()
      for (const count of numbers(4)) {
        write.sync(path.join(dir, 'state.json'), JSON.stringify({ records: numbers(count), padding }))
      }
    },
    check () {
      const file = path.join(dir, 'state.json')
      if (fs.existsSync(file)) judge(fs.readFileSync(file, 'utf8'))
    }
  },
  steno: {
    run () {
      const write = load()
      const file = path.join(dir, 'state.json')
      let chain = Promise.resolve()
      for (const count of numbers(4)) {
        const text = JSON.stringify({ records: numbers(count), padding })
        chain = chain.then(() => new Promise((done) => write.writeFile(file, text, done)))
      }
    },
    check () {
      const file = path.join(dir, 'state.json')
      if (fs.existsSync(file)) judge(fs.readFileSync(file, 'utf8'))
    }
  },
  nedb: {
    run () {
      const Store = load()
      const db = new Store({ filename: path.join(dir, 'db'), autoload: true })
      const insert = (number) => {
        if (number > 4) return db.persistence.compactDatafile()
        db.insert({ _id: `${number}`, number, padding }, (error) => error ? fail(error) : insert(number + 1))
      }
      insert(1)
    },
    check () {
      const Store = load()
      const db = new Store({ filename: path.join(dir, 'db') })
      db.loadDatabase((error) => {
        if (error) fail(error.message)
        db.find({}, (error, found) => {
          if (error) fail(error.message)
          const records = found.map((it) => it.number).sort()
          if (JSON.stringify(records) !== JSON.stringify(numbers(records.length))) fail(`records ${records}`)
        })
      })
    }
  }
}

packages[name][mode]()
