// Opens a program with Netron's own reader and prints what Netron would draw: node netron.mjs FOLDER FILE
import * as fs from 'node:fs';
import * as path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, file] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(path.join(folder, `${name}.js`)).href);
const base = await load('base');
const flatbuffers = await load('flatbuffers');
const executorch = await load('executorch');
const data = new Uint8Array(fs.readFileSync(file));

// What Netron's window gives a reader: the file, its parts, and the files of Netron's folder.
const context = {
    identifier: path.basename(file),
    set(type, value) {
        this.type = type;
        this.value = value;
        return type;
    },
    async peek() {
        return flatbuffers.BinaryReader.open(data);
    },
    async read() {
        return base.BinaryReader.open(data);
    },
    async require(name) {
        return load(name.replace('./', ''));
    },
    async asset(name) {
        return fs.readFileSync(path.join(folder, name), 'utf-8');
    },
};

const text = (type) => type ? type.toString() : '';
const ends = (list) => list.map((argument) => (Array.isArray(argument.value) ? argument.value : [])
    .map((value) => text(value && value.type)).join());
const described = (graph) => ({
    name: graph.name,
    inputs: ends(graph.inputs),
    outputs: ends(graph.outputs),
    nodes: graph.nodes.map((node) => ({
        name: node.type.name,
        inputs: ends(node.inputs),
        outputs: ends(node.outputs),
        inside: node.type.nodes ? described(node.type) : null,
    })),
});

const factory = new executorch.ModelFactory();
if (await factory.match(context) !== 'executorch') {
    throw new Error('not a program');
}
const model = await factory.open(context);
process.stdout.write(JSON.stringify({ format: model.format, graphs: model.modules.map(described) }));
