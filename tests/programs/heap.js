// Fills the heap with objects and memory outside it with buffers, drops and replaces some, and checks all.
// usage: heap.js MIB
'use strict'
const assert = require('assert')
const { createHash } = require('crypto')

const mib = Number(process.argv[2])
const text = (number, version) => `${number}:${version}:`.padEnd(200, String(number * 7 + version))

const objects = new Map()
const count = mib * 1200
for (let number = 0; number < count; number++) objects.set(number, { number, text: text(number, 1) })
for (let number = 0; number < count; number += 3) objects.set(number, { number, text: text(number, 2) })
const buffers = Array.from({ length: mib / 2 }, (_, number) => Buffer.alloc(1 << 20, `${number};`))

let hash = createHash('sha256')
for (const [number, object] of objects) {
  assert.strictEqual(object.text, text(number, number % 3 === 0 ? 2 : 1))
  hash.update(object.text)
}
buffers.forEach((buffer, number) => {
  assert(buffer.equals(Buffer.alloc(1 << 20, `${number};`)))
  hash.update(buffer)
})
console.log('whole', hash.digest('hex'))
